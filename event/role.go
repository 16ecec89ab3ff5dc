package event

// Role is the part that a column of an outbox table plays.
type Role uint8

// The roles, in the order in which contract and configuration list them.
const (
	ID Role = iota
	AggregateType
	AggregateID
	AggregateVersion
	EventType
	EventVersion
	Topic
	Key
	Partition
	Payload
	Headers
	OccurredAt
	TraceParent
	Tenant
	RoleCount
)

var roleNames = [RoleCount]string{
	"id", "aggregate_type", "aggregate_id", "aggregate_version", "event_type", "event_version", "topic", "key",
	"partition", "payload", "headers", "occurred_at", "traceparent", "tenant",
}

// String is the role's name in configurations and templates.
func (r Role) String() string {
	if r < RoleCount {
		return roleNames[r]
	}
	return "unknown"
}

// ParseRole finds the role of a name.
func ParseRole(name string) (Role, bool) {
	for i, n := range roleNames {
		if n == name {
			return Role(i), true
		}
	}
	return 0, false
}

// RoleNames lists all role names.
func RoleNames() []string { return append([]string(nil), roleNames[:]...) }

// Form says how the bytes of a binary column become text in a role other than the payload.
type Form uint8

const (
	// Hex is lower-case hex without prefix, the default.
	Hex Form = iota
	// Base64 is standard base64 with padding (RFC 4648 section 4).
	Base64
	// UUID is the 8-4-4-4-12 text of 16 bytes.
	UUID
)

// Mapping says where the value of one role comes from.
type Mapping struct {
	Column   string // the column's name; empty where Constant is used or the role is unmapped
	Constant string // the text of a constant
	IsConst  bool
	As       Form
}

// Mapped reports whether the role has any source.
func (m Mapping) Mapped() bool { return m.IsConst || m.Column != "" }

// Columns maps each role to its column or constant. The zero value maps nothing.
type Columns [RoleCount]Mapping
