-- See postgres.sql; schemas/v2/schema-mysql.sql and schema-mariadb.sql, which differ only in a
-- default of NULL.
CREATE TABLE EVENT_PUBLICATION (
    ID                     varchar(36) NOT NULL,
    LISTENER_ID            varchar(512) NOT NULL,
    EVENT_TYPE             varchar(512) NOT NULL,
    SERIALIZED_EVENT       varchar(4000) NOT NULL,
    PUBLICATION_DATE       timestamp(6) NOT NULL,
    COMPLETION_DATE        timestamp(6) DEFAULT NULL NULL,
    STATUS                 varchar(20),
    COMPLETION_ATTEMPTS    int,
    LAST_RESUBMISSION_DATE timestamp(6) DEFAULT NULL NULL,
    PRIMARY KEY (ID),
    INDEX EVENT_PUBLICATION_BY_COMPLETION_DATE_IDX (COMPLETION_DATE)
);
