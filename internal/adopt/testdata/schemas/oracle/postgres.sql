-- A table that came from Oracle: names in upper case, numeric ids from a sequence that the INSERT
-- names, and a text in place of the CLOB. The columns are those of navikt/spsak,
-- V2.7.0_26__PK-44667-Ny-Tabell-utgaaende_hendelse.sql, in English, with a status, as in
-- dmitriy-iliyov/spring-outbox, oracle/oracle_outbox_table.sql.
CREATE SEQUENCE "SEQ_OUTGOING_EVENT_ID" START WITH 10000000;

CREATE TABLE "OUTGOING_EVENT" (
    "ID"              numeric(19,0) NOT NULL,
    "SEQUENCE_NUMBER" numeric(19,0) NOT NULL,
    "OUTPUT_FEED"     varchar(50) NOT NULL,
    "TYPE"            varchar(100) NOT NULL,
    "PAYLOAD"         text NOT NULL,
    "ACTOR_ID"        numeric(19) NOT NULL,
    "STATUS"          varchar(20) DEFAULT 'NEW' NOT NULL,
    "CREATED_BY"      varchar(20) DEFAULT 'VL',
    "CREATED_AT"      timestamp(3) DEFAULT localtimestamp,
    "CHANGED_BY"      varchar(20),
    "CHANGED_AT"      timestamp(3),
    CONSTRAINT "PK_OUTGOING_EVENT" PRIMARY KEY ("ID")
);
