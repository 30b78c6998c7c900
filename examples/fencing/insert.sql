-- Like write.sql, but inserts the row if it does not exist.
INSERT INTO accounts (balance, token, id) VALUES ($1, $2, $3)
ON CONFLICT (id) DO UPDATE SET balance = excluded.balance, token = excluded.token
WHERE accounts.token <= excluded.token
