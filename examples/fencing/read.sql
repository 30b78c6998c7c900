-- Reads a row to work on it: $1 the token, $2 the id. From then on every lower token is refused, so
-- what is read cannot be changed by an earlier holder any more. No row: this comes too late.
UPDATE accounts SET token = $1 WHERE id = $2 AND token <= $1 RETURNING balance
