-- See postgres.sql. The types are those of EF Core's SQLite provider (Guid and DateTime: TEXT).
CREATE TABLE "InboxState" (
    "Id"                 INTEGER NOT NULL CONSTRAINT "PK_InboxState" PRIMARY KEY AUTOINCREMENT,
    "MessageId"          TEXT NOT NULL,
    "ConsumerId"         TEXT NOT NULL,
    "LockId"             TEXT NOT NULL,
    "RowVersion"         BLOB NULL,
    "Received"           TEXT NOT NULL,
    "ReceiveCount"       INTEGER NOT NULL,
    "ExpirationTime"     TEXT NULL,
    "Consumed"           TEXT NULL,
    "Delivered"          TEXT NULL,
    "LastSequenceNumber" INTEGER NULL,
    CONSTRAINT "AK_InboxState_MessageId_ConsumerId" UNIQUE ("MessageId", "ConsumerId")
);

CREATE TABLE "OutboxState" (
    "OutboxId"           TEXT NOT NULL CONSTRAINT "PK_OutboxState" PRIMARY KEY,
    "LockId"             TEXT NOT NULL,
    "RowVersion"         BLOB NULL,
    "Created"            TEXT NOT NULL,
    "Delivered"          TEXT NULL,
    "LastSequenceNumber" INTEGER NULL
);

CREATE TABLE "OutboxMessage" (
    "SequenceNumber"     INTEGER NOT NULL CONSTRAINT "PK_OutboxMessage" PRIMARY KEY AUTOINCREMENT,
    "EnqueueTime"        TEXT NULL,
    "SentTime"           TEXT NOT NULL,
    "Headers"            TEXT NULL,
    "Properties"         TEXT NULL,
    "InboxMessageId"     TEXT NULL,
    "InboxConsumerId"    TEXT NULL,
    "OutboxId"           TEXT NULL,
    "MessageId"          TEXT NOT NULL,
    "ContentType"        TEXT NOT NULL,
    "MessageType"        TEXT NOT NULL,
    "Body"               TEXT NOT NULL,
    "ConversationId"     TEXT NULL,
    "CorrelationId"      TEXT NULL,
    "InitiatorId"        TEXT NULL,
    "RequestId"          TEXT NULL,
    "SourceAddress"      TEXT NULL,
    "DestinationAddress" TEXT NULL,
    "ResponseAddress"    TEXT NULL,
    "FaultAddress"       TEXT NULL,
    "ExpirationTime"     TEXT NULL,
    CONSTRAINT "FK_OutboxMessage_InboxState_InboxMessageId_InboxConsumerId"
        FOREIGN KEY ("InboxMessageId", "InboxConsumerId") REFERENCES "InboxState" ("MessageId", "ConsumerId"),
    CONSTRAINT "FK_OutboxMessage_OutboxState_OutboxId" FOREIGN KEY ("OutboxId") REFERENCES "OutboxState" ("OutboxId")
);

CREATE INDEX "IX_InboxState_Delivered" ON "InboxState" ("Delivered");
CREATE INDEX "IX_OutboxMessage_EnqueueTime" ON "OutboxMessage" ("EnqueueTime");
CREATE INDEX "IX_OutboxMessage_ExpirationTime" ON "OutboxMessage" ("ExpirationTime");
CREATE UNIQUE INDEX "IX_OutboxMessage_InboxMessageId_InboxConsumerId_SequenceNumber"
    ON "OutboxMessage" ("InboxMessageId", "InboxConsumerId", "SequenceNumber");
CREATE UNIQUE INDEX "IX_OutboxMessage_OutboxId_SequenceNumber" ON "OutboxMessage" ("OutboxId", "SequenceNumber");
CREATE INDEX "IX_OutboxState_Created" ON "OutboxState" ("Created");
