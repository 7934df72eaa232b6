-- See postgres.sql; here with ids that the database generates (mysql/5.initialize-database-db-id.sql).
CREATE TABLE message (
    dbid              bigint NOT NULL AUTO_INCREMENT PRIMARY KEY,
    id                longtext,
    destination       longtext NOT NULL,
    headers           longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL,
    payload           longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL,
    published         smallint DEFAULT 0,
    message_partition smallint,
    creation_time     bigint
);

CREATE INDEX message_published_idx ON message (published, dbid);
