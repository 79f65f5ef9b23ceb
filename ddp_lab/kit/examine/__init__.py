"""What a training does although nothing fails: a witness in each rank, and a judge."""
