package binlog

// LockConnection is the server's id of the session that holds the pipeline's lock.
func (s *Source) LockConnection() uint32 { return s.lock.id }
