-- PostgreSQL. The token is in the row that it protects; 0 is lower than every token.
CREATE TABLE accounts (
    id      text   PRIMARY KEY,
    balance bigint NOT NULL,
    token   bigint NOT NULL DEFAULT 0
);
