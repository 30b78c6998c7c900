-- The token is in the row that it protects. 0 is lower than every token.
CREATE TABLE IF NOT EXISTS accounts (
    id      text   PRIMARY KEY,
    balance bigint NOT NULL,
    token   bigint NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS entries (
    account text   NOT NULL REFERENCES accounts (id),
    amount  bigint NOT NULL
);
INSERT INTO accounts (id, balance) VALUES ('7', 0) ON CONFLICT DO NOTHING;
