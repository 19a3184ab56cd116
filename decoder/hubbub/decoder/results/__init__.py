"""What the commands find out, as data: rows, words and charts that any format can write."""
