-- Axon Framework 4's table of events (AxonFramework/AxonFramework, branch axon-4.13.x,
-- AbstractEventTableFactory and PostgresEventTableFactory, names by EventSchema). It is an event
-- store: rows are read again by their aggregate, and never deleted.
CREATE TABLE DomainEventEntry (
    globalIndex         bigserial NOT NULL,
    aggregateIdentifier varchar(255) NOT NULL,
    sequenceNumber      bigint NOT NULL,
    type                varchar(255),
    eventIdentifier     varchar(255) NOT NULL,
    metaData            bytea,
    payload             bytea NOT NULL,
    payloadRevision     varchar(255),
    payloadType         varchar(255) NOT NULL,
    timeStamp           varchar(255) NOT NULL,
    PRIMARY KEY (globalIndex),
    UNIQUE (aggregateIdentifier, sequenceNumber),
    UNIQUE (eventIdentifier)
);
