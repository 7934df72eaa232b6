-- The table of Debezium's outbox event router: the columns of its documentation (Outbox Event Router,
-- "Basic outbox table"), and the column timestamp that the Quarkus extension adds
-- (debezium/debezium-quarkus, OutboxEventHbmWriter and DebeziumOutboxConfig: table OutboxEvent;
-- all columns are NOT NULL except payload).
CREATE TABLE outboxevent (
    id            uuid         NOT NULL,
    aggregatetype varchar(255) NOT NULL,
    aggregateid   varchar(255) NOT NULL,
    type          varchar(255) NOT NULL,
    timestamp     timestamp(6) NOT NULL,
    payload       jsonb,
    PRIMARY KEY (id)
);
