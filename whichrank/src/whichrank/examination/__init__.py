"""What a training does although nothing fails: witnesses, and questions to them."""
