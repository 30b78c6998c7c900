-- The token stands in the row that it guards; 0 is below every token. PostgreSQL.
CREATE TABLE accounts (
    id      text   PRIMARY KEY,
    balance bigint NOT NULL,
    token   bigint NOT NULL DEFAULT 0
);
