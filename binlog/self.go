package binlog

// Self is how a source with these options presents itself to its server: the replica's server_id and UUID.
func (o Options) Self() (serverID uint32, uuid string) {
	serverID, uuid = o.ServerID, deriveUUID(o.Seed)
	if serverID == 0 {
		serverID = deriveServerID(o.Seed)
	}
	return serverID, uuid
}

// ReportHost is the name under which it shows there.
func (o Options) ReportHost() string {
	host := "outtail-" + o.Pipeline
	return host[:min(len(host), 60)]
}
