package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// kafkaPatience bounds the whole look at a cluster: the client itself tries for ever.
const kafkaPatience = 20 * time.Second

// Kafka is what is needed to look at a Kafka sink.
type Kafka struct {
	Brokers []string
	TLS     KafkaTLS
	SASL    SASL
	// Topics are those of routes whose topic is constant; Templates those that depend on the row.
	Topics, Templates []string
	// Creates says that missing topics are created, Replication with how many replicas.
	Creates     bool
	Replication int16
	RowLimit    int64
	// ClusterID is the cluster whose acknowledgements are stored; empty: none yet.
	ClusterID func(context.Context) string
}

// KafkaTLS says how brokers are reached by TLS; the files are PEM.
type KafkaTLS struct {
	Enabled       bool
	CA, Cert, Key string
	ServerName    string
}

// SASL says how to authenticate; an empty Mechanism is not at all.
type SASL struct {
	Mechanism, User, Password string
}

// kafkaFacts is what a cluster says.
type kafkaFacts struct {
	ClusterID string
	Stored    string // cluster id in the checkpoint
	Brokers   int
	Topics    []kafkaTopic
}

type kafkaTopic struct {
	Name       string
	Err        error // of the metadata
	Partitions int
	Replicas   int    // the fewest of a partition
	InSync     int    // the fewest of a partition
	Leaderless int    // partitions without a leader
	ReadOnly   bool   // the user may not write
	ConfigErr  error  // of DescribeConfigs
	MaxMessage int64  // -1 unknown
	MinInSync  int    // -1 unknown
	Cleanup    string // cleanup.policy
}

// CheckKafka looks at the cluster.
func CheckKafka(ctx context.Context, o Kafka) Part {
	part := Part{Part: "sink", Kind: "kafka", Place: strings.Join(o.Brokers, ", ")}
	ctx, cancel := context.WithTimeout(ctx, kafkaPatience)
	defer cancel()
	f, refused := collectKafka(ctx, &o)
	if refused != nil {
		part.Findings = list{*refused}
		return part
	}
	part.Findings = judgeKafka(&o, f)
	return part
}

func (o *Kafka) opts() ([]kgo.Opt, error) {
	opts := []kgo.Opt{kgo.SeedBrokers(o.Brokers...), kgo.ClientID("outtail-doctor"), kgo.RetryTimeout(kafkaPatience / 2), kgo.RequestRetries(4), kgo.DialTimeout(5 * time.Second)}
	if o.TLS.Enabled {
		c := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.TLS.ServerName}
		if o.TLS.CA != "" {
			pem, err := os.ReadFile(o.TLS.CA)
			if err != nil {
				return nil, err
			}
			if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(pem) {
				return nil, errors.New(o.TLS.CA + " holds no PEM certificate")
			}
		}
		if o.TLS.Cert != "" {
			pair, err := tls.LoadX509KeyPair(o.TLS.Cert, o.TLS.Key)
			if err != nil {
				return nil, err
			}
			c.Certificates = []tls.Certificate{pair}
		}
		opts = append(opts, kgo.DialTLSConfig(c))
	}
	auth := scram.Auth{User: o.SASL.User, Pass: o.SASL.Password}
	switch o.SASL.Mechanism {
	case "plain":
		opts = append(opts, kgo.SASL(plain.Auth{User: o.SASL.User, Pass: o.SASL.Password}.AsMechanism()))
	case "scram-sha-256":
		opts = append(opts, kgo.SASL(auth.AsSha256Mechanism()))
	case "scram-sha-512":
		opts = append(opts, kgo.SASL(auth.AsSha512Mechanism()))
	}
	return opts, nil
}

func collectKafka(ctx context.Context, o *Kafka) (*kafkaFacts, *Finding) {
	opts, err := o.opts()
	if err != nil {
		return nil, &Finding{Severity: Error, Code: codeBrokers, Found: "the TLS files cannot be used: " + err.Error(), Why: "nothing can be sent", Repair: "check tls.ca, tls.cert and tls.key of the sink"}
	}
	cl, err := kgo.NewClient(opts...)
	if err != nil {
		return nil, &Finding{Severity: Error, Code: codeBrokers, Found: "the client cannot be made: " + err.Error(), Why: "nothing can be sent", Repair: "check the sink's brokers"}
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	var m kadm.Metadata
	if len(o.Topics) == 0 {
		m, err = adm.BrokerMetadata(ctx) // no names would mean all topics
	} else {
		m, err = adm.Metadata(kadm.WithAuthorizedOps(ctx), o.Topics...)
	}
	if err != nil {
		return nil, kafkaUnreachable(o, err)
	}
	f := &kafkaFacts{ClusterID: m.Cluster, Brokers: len(m.Brokers)}
	if o.ClusterID != nil {
		f.Stored = o.ClusterID(ctx)
	}
	var there []string
	for _, name := range o.Topics {
		t := kafkaTopic{Name: name, MaxMessage: -1, MinInSync: -1}
		d, ok := m.Topics[name]
		switch {
		case !ok:
			t.Err = kerr.UnknownTopicOrPartition
		case d.Err != nil:
			t.Err = d.Err
		default:
			there = append(there, name)
			t.Partitions = len(d.Partitions)
			// Old brokers do not say what is allowed.
			ops := d.AuthorizedOperations
			t.ReadOnly = len(ops) > 0 && !slices.Contains(ops, kadm.OpWrite) && !slices.Contains(ops, kadm.OpAll)
			for _, p := range d.Partitions {
				if t.Replicas == 0 || len(p.Replicas) < t.Replicas {
					t.Replicas = len(p.Replicas)
				}
				if t.InSync == 0 || len(p.ISR) < t.InSync {
					t.InSync = len(p.ISR)
				}
				if p.Leader < 0 {
					t.Leaderless++
				}
			}
		}
		f.Topics = append(f.Topics, t)
	}
	f.configs(ctx, adm, there)
	return f, nil
}

func (f *kafkaFacts) configs(ctx context.Context, adm *kadm.Client, names []string) {
	if len(names) == 0 {
		return
	}
	all, err := adm.DescribeTopicConfigs(ctx, names...)
	for i := range f.Topics {
		t := &f.Topics[i]
		if t.Err != nil {
			continue
		}
		rc, rerr := all.On(t.Name, nil)
		switch {
		case err != nil && len(all) == 0:
			t.ConfigErr = err
			continue
		case rerr != nil:
			t.ConfigErr = rerr
			continue
		case rc.Err != nil:
			t.ConfigErr = rc.Err
			continue
		}
		for _, c := range rc.Configs {
			if c.Value == nil {
				continue
			}
			n, err := strconv.ParseInt(*c.Value, 10, 64)
			switch {
			case c.Key == "max.message.bytes" && err == nil:
				t.MaxMessage = n
			case c.Key == "min.insync.replicas" && err == nil:
				t.MinInSync = int(n)
			case c.Key == "cleanup.policy":
				t.Cleanup = *c.Value
			}
		}
	}
}

func kafkaUnreachable(o *Kafka, err error) *Finding {
	f := &Finding{Severity: Error, Code: codeBrokers, Why: "nothing can be sent: outtail stays up, degraded, and tries again"}
	said := ": " + err.Error()
	var ke *kerr.Error
	switch {
	case errors.As(err, &ke) && strings.Contains(ke.Message, "SASL"):
		f.Found = "the brokers refuse the user " + o.SASL.User + said
		f.Repair = "check sasl.mechanism, user and password of the sink"
	case strings.Contains(said, "tls") || strings.Contains(said, "x509"):
		f.Found = "TLS failed" + said
		f.Repair = "check tls.enabled, tls.ca and tls.server_name of the sink"
	default:
		f.Found = "no broker can be reached" + said
		if strings.Contains(said, "is TLS missing") { // which is a guess of the client's
			f.Found += "; a broker that is only starting hangs up like this, too"
		}
		f.Repair = "kafka-broker-api-versions.sh --bootstrap-server " + o.Brokers[0]
		if o.TLS.Enabled || o.SASL.Mechanism != "" {
			f.Repair += " --command-config CLIENT.properties"
		}
	}
	return f
}

// judgeKafka says what the facts mean.
func judgeKafka(o *Kafka, f *kafkaFacts) list {
	var l list
	l.ok(codeBrokers, "the cluster %s answers; it has %s", f.ClusterID, count(f.Brokers, "broker"))
	switch {
	case f.Stored == "":
	case f.ClusterID != "" && f.Stored != f.ClusterID:
		l.add(Error, codeCluster, "the cluster is "+f.ClusterID+", what was acknowledged is in "+f.Stored, "events that only the former cluster has would be missing here: a start stops",
			"outtail checkpoint accept -c FILE --pipeline P --code OT6003 --reason R   (once the new cluster has what the former one had)")
	default:
		l.ok(codeCluster, "the cluster is the one whose acknowledgements are stored")
	}
	for _, t := range f.Topics {
		judgeTopic(&l, o, f, t)
	}
	for _, t := range o.Templates {
		l.add(Note, codeTopic, "the topic "+t+" depends on the row: it was not looked at", "an event waits, and those behind it, until the topic that it names exists and may be written", "")
	}
	return l
}

func judgeTopic(l *list, o *Kafka, f *kafkaFacts, t kafkaTopic) {
	server := "--bootstrap-server " + o.Brokers[0]
	if o.TLS.Enabled || o.SASL.Mechanism != "" {
		server += " --command-config CLIENT.properties" // which says how the tool logs in, and only the reader knows it
	}
	user := "User:" + o.SASL.User
	if o.SASL.User == "" {
		user = "User:…"
	}
	switch {
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition) && o.Creates:
		l.ok(codeTopic, "the topic %s does not exist yet; outtail creates it", t.Name)
		return
	case errors.Is(t.Err, kerr.UnknownTopicOrPartition):
		l.add(Error, codeTopic, "the topic "+t.Name+" does not exist, or the user may not see it", "events of its route wait, and those behind them",
			fmt.Sprintf("kafka-topics.sh %s --create --topic %s --partitions 6 --replication-factor %d\n(or create_topics in the configuration)", server, t.Name, min(max(f.Brokers, 1), 3)))
		return
	case errors.Is(t.Err, kerr.TopicAuthorizationFailed), t.ReadOnly:
		l.add(Error, codeTopic, "the user may not write to the topic "+t.Name, "events of its route wait, and those behind them",
			fmt.Sprintf("kafka-acls.sh %s --add --allow-principal %s --operation Write --operation Describe --operation DescribeConfigs --topic %s", server, user, t.Name))
		return
	case t.Err != nil:
		l.add(Error, codeTopic, "the topic "+t.Name+" cannot be looked up: "+t.Err.Error(), "events of its route wait", "look again; if it persists, the broker's log tells more")
		return
	case t.Leaderless > 0:
		l.add(Error, codeTopic, fmt.Sprintf("%d of %d partitions of %s have no leader", t.Leaderless, t.Partitions, t.Name), "their events wait, and those behind them",
			"kafka-topics.sh "+server+" --describe --topic "+t.Name+" --unavailable-partitions")
	default:
		l.ok(codeTopic, "the topic %s has %s and %s", t.Name, count(t.Partitions, "partition"), count(t.Replicas, "replica"))
	}
	if t.ConfigErr != nil {
		l.add(Note, codeDescribe, "the user may not read the settings of "+t.Name+": "+t.ConfigErr.Error(), "outtail takes 1,000,012 bytes for the largest message; larger events are record failures even where the topic would take them",
			fmt.Sprintf("kafka-acls.sh %s --add --allow-principal %s --operation DescribeConfigs --topic %s", server, user, t.Name))
	} else {
		judgeTopicSettings(l, o, t, server)
	}
	judgeTopicReplicas(l, f, t, server)
}

func judgeTopicSettings(l *list, o *Kafka, t kafkaTopic, server string) {
	if t.MaxMessage >= 0 && t.MaxMessage < o.RowLimit {
		l.add(Note, codeRecord, fmt.Sprintf("%s takes messages up to %s, limits.row is %s", t.Name, size(t.MaxMessage), size(o.RowLimit)), "an event between the two cannot be delivered: its poison policy decides",
			fmt.Sprintf("kafka-configs.sh %s --alter --topic %s --add-config max.message.bytes=%d", server, t.Name, o.RowLimit+64<<10))
	} else if t.MaxMessage >= 0 {
		l.ok(codeRecord, "%s takes messages up to %s", t.Name, size(t.MaxMessage))
	}
}

func judgeTopicReplicas(l *list, f *kafkaFacts, t kafkaTopic, server string) {
	alter := func(n int) string {
		return fmt.Sprintf("kafka-configs.sh %s --alter --topic %s --add-config min.insync.replicas=%d", server, t.Name, n)
	}
	switch {
	case t.MinInSync > t.Replicas:
		l.add(Error, codeReplicas, fmt.Sprintf("min.insync.replicas of %s is %d, and it has %s", t.Name, t.MinInSync, count(t.Replicas, "replica")), "nothing is ever acknowledged", alter(max(1, t.Replicas-1)))
	case t.MinInSync > t.InSync:
		l.add(Error, codeReplicas, fmt.Sprintf("min.insync.replicas of %s is %d, and %d are in sync", t.Name, t.MinInSync, t.InSync), "nothing is acknowledged until a broker is back", "bring the missing brokers back")
	case t.Replicas < 2 && f.Brokers > 1:
		l.add(Warning, codeReplicas, t.Name+" has one replica", "an acknowledged event is lost with the disk of one broker", "kafka-reassign-partitions.sh "+server+" …   (to 3 replicas)\n"+alter(2))
	case t.Replicas < 2:
		l.add(Note, codeReplicas, t.Name+" has one replica, as the cluster has one broker", "an acknowledged event is lost with its disk", "")
	case t.MinInSync == 1:
		l.add(Note, codeReplicas, "min.insync.replicas of "+t.Name+" is 1", "an event may be acknowledged by one broker alone, and be lost with it", alter(2))
	case t.InSync < t.Replicas:
		l.add(Warning, codeReplicas, fmt.Sprintf("%d of %d replicas of %s are in sync", t.InSync, t.Replicas, t.Name), "a broker is missing or behind", "kafka-topics.sh "+server+" --describe --under-replicated-partitions")
	default:
		l.ok(codeReplicas, "%s: %d replicas, %d have to be in sync", t.Name, t.Replicas, max(t.MinInSync, 0))
	}
}
