-- See postgres.sql. The types are those of Pomelo (Guid: char(36) with ascii_general_ci, DateTime:
-- datetime(6), text: longtext), for MySQL and MariaDB.
CREATE TABLE `InboxState` (
    `Id`                 bigint NOT NULL AUTO_INCREMENT,
    `MessageId`          char(36) COLLATE ascii_general_ci NOT NULL,
    `ConsumerId`         char(36) COLLATE ascii_general_ci NOT NULL,
    `LockId`             char(36) COLLATE ascii_general_ci NOT NULL,
    `RowVersion`         timestamp(6) NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    `Received`           datetime(6) NOT NULL,
    `ReceiveCount`       int NOT NULL,
    `ExpirationTime`     datetime(6) NULL,
    `Consumed`           datetime(6) NULL,
    `Delivered`          datetime(6) NULL,
    `LastSequenceNumber` bigint NULL,
    CONSTRAINT `PK_InboxState` PRIMARY KEY (`Id`),
    CONSTRAINT `AK_InboxState_MessageId_ConsumerId` UNIQUE (`MessageId`, `ConsumerId`)
) CHARACTER SET=utf8mb4;

CREATE TABLE `OutboxState` (
    `OutboxId`           char(36) COLLATE ascii_general_ci NOT NULL,
    `LockId`             char(36) COLLATE ascii_general_ci NOT NULL,
    `RowVersion`         timestamp(6) NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
    `Created`            datetime(6) NOT NULL,
    `Delivered`          datetime(6) NULL,
    `LastSequenceNumber` bigint NULL,
    CONSTRAINT `PK_OutboxState` PRIMARY KEY (`OutboxId`)
) CHARACTER SET=utf8mb4;

CREATE TABLE `OutboxMessage` (
    `SequenceNumber`     bigint NOT NULL AUTO_INCREMENT,
    `EnqueueTime`        datetime(6) NULL,
    `SentTime`           datetime(6) NOT NULL,
    `Headers`            longtext CHARACTER SET utf8mb4 NULL,
    `Properties`         longtext CHARACTER SET utf8mb4 NULL,
    `InboxMessageId`     char(36) COLLATE ascii_general_ci NULL,
    `InboxConsumerId`    char(36) COLLATE ascii_general_ci NULL,
    `OutboxId`           char(36) COLLATE ascii_general_ci NULL,
    `MessageId`          char(36) COLLATE ascii_general_ci NOT NULL,
    `ContentType`        varchar(256) CHARACTER SET utf8mb4 NOT NULL,
    `MessageType`        longtext CHARACTER SET utf8mb4 NOT NULL,
    `Body`               longtext CHARACTER SET utf8mb4 NOT NULL,
    `ConversationId`     char(36) COLLATE ascii_general_ci NULL,
    `CorrelationId`      char(36) COLLATE ascii_general_ci NULL,
    `InitiatorId`        char(36) COLLATE ascii_general_ci NULL,
    `RequestId`          char(36) COLLATE ascii_general_ci NULL,
    `SourceAddress`      varchar(256) CHARACTER SET utf8mb4 NULL,
    `DestinationAddress` varchar(256) CHARACTER SET utf8mb4 NULL,
    `ResponseAddress`    varchar(256) CHARACTER SET utf8mb4 NULL,
    `FaultAddress`       varchar(256) CHARACTER SET utf8mb4 NULL,
    `ExpirationTime`     datetime(6) NULL,
    CONSTRAINT `PK_OutboxMessage` PRIMARY KEY (`SequenceNumber`),
    CONSTRAINT `FK_OutboxMessage_InboxState_InboxMessageId_InboxConsumerId`
        FOREIGN KEY (`InboxMessageId`, `InboxConsumerId`) REFERENCES `InboxState` (`MessageId`, `ConsumerId`),
    CONSTRAINT `FK_OutboxMessage_OutboxState_OutboxId` FOREIGN KEY (`OutboxId`) REFERENCES `OutboxState` (`OutboxId`)
) CHARACTER SET=utf8mb4;

CREATE INDEX `IX_InboxState_Delivered` ON `InboxState` (`Delivered`);
CREATE INDEX `IX_OutboxMessage_EnqueueTime` ON `OutboxMessage` (`EnqueueTime`);
CREATE INDEX `IX_OutboxMessage_ExpirationTime` ON `OutboxMessage` (`ExpirationTime`);
CREATE UNIQUE INDEX `IX_OutboxMessage_InboxMessageId_InboxConsumerId_SequenceNumber`
    ON `OutboxMessage` (`InboxMessageId`, `InboxConsumerId`, `SequenceNumber`);
CREATE UNIQUE INDEX `IX_OutboxMessage_OutboxId_SequenceNumber` ON `OutboxMessage` (`OutboxId`, `SequenceNumber`);
CREATE INDEX `IX_OutboxState_Created` ON `OutboxState` (`Created`);
