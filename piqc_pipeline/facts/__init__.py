"""What do we know, how sure are we? Types shared by every package; imports none of them."""
