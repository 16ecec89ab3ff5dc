package harness

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// secured is what a broker needs for KafkaOptions.Secured. Whoever does not log in, which is the harness and the broker itself,
// may do everything. A session is asked for its password again every two seconds, so that one that was changed soon counts.
var secured = map[string]string{
	"KAFKA_LISTENER_SECURITY_PROTOCOL_MAP":                          "DIRECT:PLAINTEXT,BEHIND:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
	"KAFKA_LISTENER_NAME_BEHIND_SASL_ENABLED_MECHANISMS":            "SCRAM-SHA-256",
	"KAFKA_LISTENER_NAME_BEHIND_SCRAM___SHA___256_SASL_JAAS_CONFIG": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
	"KAFKA_AUTHORIZER_CLASS_NAME":                                   "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
	"KAFKA_SUPER_USERS":                                             "User:ANONYMOUS",
	"KAFKA_CONNECTIONS_MAX_REAUTH_MS":                               "2000",
}

// NewUser makes a user of a secured broker who may do nothing yet.
func (k *Kafka) NewUser(t testing.TB) (name, password string) {
	t.Helper()
	name, password = "u"+Unique(), "p"+Unique()
	k.SetPassword(t, name, password)
	return name, password
}

// SetPassword gives a user a password, in place of the one before.
func (k *Kafka) SetPassword(t testing.TB, name, password string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	res, err := k.Admin(t).AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{{User: name, Mechanism: kadm.ScramSha256, Iterations: 4096, Password: password}})
	require.NoError(t, err)
	require.NoError(t, res.Error())
}

// Right is an operation on a topic.
type Right = kmsg.ACLOperation

// What a producer needs, and to know what the topic takes.
const (
	Write           = kmsg.ACLOperationWrite
	Describe        = kmsg.ACLOperationDescribe
	DescribeConfigs = kmsg.ACLOperationDescribeConfigs
)

// Grant gives a user rights on a topic, all of the above where none is named.
func (k *Kafka) Grant(t testing.TB, name, topic string, rights ...Right) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	res, err := k.Admin(t).CreateACLs(ctx, acls(name, topic, rights))
	require.NoError(t, err)
	for _, r := range res {
		require.NoError(t, r.Err)
	}
}

// Revoke takes rights back, all of the above where none is named.
func (k *Kafka) Revoke(t testing.TB, name, topic string, rights ...Right) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	res, err := k.Admin(t).DeleteACLs(ctx, acls(name, topic, rights))
	require.NoError(t, err)
	for _, r := range res {
		require.NoError(t, r.Err)
	}
}

func acls(name, topic string, rights []Right) *kadm.ACLBuilder {
	if rights == nil {
		rights = []Right{Write, Describe, DescribeConfigs}
	}
	return kadm.NewACLs().Topics(topic).Allow("User:" + name).AllowHosts("*").ResourcePatternType(kadm.ACLPatternLiteral).Operations(rights...)
}
