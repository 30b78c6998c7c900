-- Reads a row: $1 is the token, $2 the id. From then on lower tokens are rejected, so an earlier holder cannot
-- change the row after this read. Returns no row if the token is stale.
UPDATE accounts SET token = $1 WHERE id = $2 AND token <= $1 RETURNING balance
