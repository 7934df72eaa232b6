-- See postgres.sql; IStorageInitializer.MySql.cs. The dot is a part of the table's name.
CREATE TABLE `cap.published` (
    `Id`         bigint NOT NULL,
    `Version`    varchar(20) DEFAULT NULL,
    `Name`       varchar(200) NOT NULL,
    `Content`    longtext,
    `Retries`    int DEFAULT NULL,
    `Added`      datetime NOT NULL,
    `ExpiresAt`  datetime DEFAULT NULL,
    `StatusName` varchar(40) NOT NULL,
    PRIMARY KEY (`Id`),
    INDEX `IX_Version_ExpiresAt_StatusName` (`Version`, `ExpiresAt`, `StatusName`),
    INDEX `IX_ExpiresAt_StatusName` (`ExpiresAt`, `StatusName`)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
