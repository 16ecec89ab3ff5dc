package doctor

// One code per check, whatever its result.
const (
	codeReach   = "OT8001" // doctor: the server can be reached and lets the user in
	codeHidden  = "OT8002" // doctor: something that the user may not see was not looked at
	codeStored  = "OT8003" // doctor: the stored position can be read and is of this kind of source
	codeQuery   = "OT8004" // doctor: a question that the server did not answer
	codeTables  = "OT8005" // doctor: the tables exist and their rows are in the log
	codeColumns = "OT8006" // doctor: the mapped columns exist and have types that arrive as meant
	codeSelect  = "OT8007" // doctor: the user may select from the tables
	codeVersion = "OT8008" // doctor: the server's version
	codeDurable = "OT8009" // doctor: what is committed survives a crash of the database

	codeWALLevel    = "OT8020" // doctor: wal_level
	codeReplication = "OT8021" // doctor: the role may open a replication connection, and nothing in between forbids it
	codeRoom        = "OT8022" // doctor: replication slots and WAL senders are left
	codeKeep        = "OT8023" // doctor: how much WAL the slot may keep (max_slot_wal_keep_size)
	codeTimeouts    = "OT8024" // doctor: wal_sender_timeout, idle_replication_slot_timeout
	codePublication = "OT8025" // doctor: the publication has the tables and publishes inserts
	codeOperations  = "OT8026" // doctor: the publication publishes no more than inserts, and that is harmless
	codeFilters     = "OT8027" // doctor: row filters, column lists and partition roots of the publication
	codeSlot        = "OT8028" // doctor: the replication slot exists and can be read
	codeSlotStored  = "OT8029" // doctor: slot and stored position fit
	codeRetained    = "OT8030" // doctor: how much WAL the slot keeps
	codeHeld        = "OT8031" // doctor: transactions that hold the slot back
	codeStandby     = "OT8032" // doctor: recovery, standbys and failover of the slot

	codeLogBin      = "OT8040" // doctor: the server writes a binary log
	codeFormat      = "OT8041" // doctor: binlog_format, binlog_row_image, binlog_row_value_options
	codeMetadata    = "OT8042" // doctor: binlog_row_metadata
	codeExpiry      = "OT8043" // doctor: how long binary logs are kept
	codeNeeded      = "OT8044" // doctor: the log after the stored position is still there
	codeGTID        = "OT8045" // doctor: gtid_mode
	codePrivileges  = "OT8046" // doctor: the user's privileges
	codeServerID    = "OT8047" // doctor: server_id of the server, of outtail and of other replicas
	codeReplica     = "OT8048" // doctor: the server is itself a replica
	codeLogged      = "OT8049" // doctor: the schema of the table is written to the binary log
	codePacket      = "OT8051" // doctor: max_allowed_packet and limits.row
	codeXA          = "OT8052" // doctor: prepared XA transactions
	codeTriggers    = "OT8053" // doctor: triggers on the tables
	codeFlavour     = "OT8054" // doctor: MySQL or MariaDB
	codeCompression = "OT8055" // doctor: compression of the binary log
	codeChanges     = "OT8056" // doctor: the tables' columns since the stored position
	codeWriters     = "OT8057" // doctor: triggers, views and routines that write to the tables while statements are logged

	codeBrokers  = "OT8080" // doctor: a broker can be reached and lets the user in
	codeTopic    = "OT8081" // doctor: the topics of constant routes exist and may be written
	codeDescribe = "OT8082" // doctor: the user may read the topics' settings
	codeRecord   = "OT8083" // doctor: max.message.bytes and limits.row
	codeReplicas = "OT8084" // doctor: replication and min.insync.replicas of the topics
	codeCluster  = "OT8085" // doctor: the cluster is the one whose acknowledgements are stored
)
