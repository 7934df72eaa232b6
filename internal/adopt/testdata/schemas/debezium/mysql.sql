-- See postgres.sql. Hibernate maps a UUID to binary(16) on MySQL and MariaDB.
CREATE TABLE OutboxEvent (
    id            binary(16)   NOT NULL,
    aggregatetype varchar(255) NOT NULL,
    aggregateid   varchar(255) NOT NULL,
    type          varchar(255) NOT NULL,
    timestamp     datetime(6)  NOT NULL,
    payload       json,
    PRIMARY KEY (id)
) ENGINE = InnoDB;
