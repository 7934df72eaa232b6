-- CAP's table of published messages (dotnetcore/CAP, IStorageInitializer.PostgreSql.cs), in its own
-- schema, with quoted names.
CREATE SCHEMA cap;

CREATE TABLE "cap"."published" (
    "Id"         bigint PRIMARY KEY NOT NULL,
    "Version"    varchar(20) NOT NULL,
    "Name"       varchar(200) NOT NULL,
    "Content"    text NULL,
    "Retries"    int NOT NULL,
    "Added"      timestamp NOT NULL,
    "ExpiresAt"  timestamp NULL,
    "StatusName" varchar(50) NOT NULL
);

CREATE INDEX "idx_published_ExpiresAt_StatusName" ON "cap"."published" ("ExpiresAt", "StatusName");
CREATE INDEX "idx_published_Version_ExpiresAt_StatusName" ON "cap"."published" ("Version", "ExpiresAt", "StatusName");
