-- See postgres.sql; MySqlEventTableFactory.
CREATE TABLE DomainEventEntry (
    globalIndex         bigint AUTO_INCREMENT NOT NULL,
    aggregateIdentifier varchar(255) NOT NULL,
    sequenceNumber      bigint NOT NULL,
    type                varchar(255),
    eventIdentifier     varchar(255) NOT NULL,
    metaData            blob,
    payload             blob NOT NULL,
    payloadRevision     varchar(255),
    payloadType         varchar(255) NOT NULL,
    timeStamp           varchar(255) NOT NULL,
    PRIMARY KEY (globalIndex),
    UNIQUE (aggregateIdentifier, sequenceNumber),
    UNIQUE (eventIdentifier)
);
