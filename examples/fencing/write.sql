-- Changes a row, unless it has a higher token: $1 is the balance, $2 the token, $3 the id.
-- Updates one row; or none, if the token is stale or the row does not exist.
-- Of two concurrent statements, the second waits for the first to commit, then checks the new token. This holds for
-- READ COMMITTED, the default; at REPEATABLE READ and SERIALIZABLE it fails with error 40001 instead.
UPDATE accounts SET balance = $1, token = $2 WHERE id = $3 AND token <= $2
