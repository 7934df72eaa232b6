-- See postgres.sql. MariaDB has sequences, too.
CREATE SEQUENCE SEQ_OUTGOING_EVENT_ID START WITH 10000000;

CREATE TABLE OUTGOING_EVENT (
    ID              decimal(19,0) NOT NULL,
    SEQUENCE_NUMBER decimal(19,0) NOT NULL,
    OUTPUT_FEED     varchar(50) NOT NULL,
    TYPE            varchar(100) NOT NULL,
    PAYLOAD         longtext NOT NULL,
    ACTOR_ID        decimal(19,0) NOT NULL,
    STATUS          varchar(20) DEFAULT 'NEW' NOT NULL,
    CREATED_BY      varchar(20) DEFAULT 'VL',
    CREATED_AT      datetime(3) DEFAULT CURRENT_TIMESTAMP(3),
    CHANGED_BY      varchar(20),
    CHANGED_AT      datetime(3),
    CONSTRAINT PK_OUTGOING_EVENT PRIMARY KEY (ID)
);
