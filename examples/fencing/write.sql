-- Changes a row, unless it has seen a higher token: $1 the balance, $2 the token, $3 the id.
-- One row is updated; or none, if this comes too late or there is no such row.
-- Two that come at once: the second waits for the first to commit, then looks at the token anew. That
-- is so at READ COMMITTED, the default; from REPEATABLE READ on it fails with 40001 instead.
UPDATE accounts SET balance = $1, token = $2 WHERE id = $3 AND token <= $2
