package config

import (
	"net"
	"strings"
	"time"
)

// Sink is exactly one of its kinds.
type Sink struct {
	Kind  string // kafka or stdout
	Kafka *Kafka
}

// Kinds of sinks.
const (
	SinkKafka  = "kafka"
	SinkStdout = "stdout"
)

// Kafka is a Kafka sink.
type Kafka struct {
	Brokers      []string // host:port
	TLS          KafkaTLS
	SASL         SASL
	Compression  string // none, gzip, snappy, lz4 or zstd
	Linger       time.Duration
	CreateTopics *CreateTopics // nil: topics are not created
	AllowTopics  []string      // globs; empty allows all but names beginning with "__"
}

// KafkaTLS says whether brokers are reached by TLS.
type KafkaTLS struct {
	Enabled       bool
	CA, Cert, Key string // PEM files; empty: the system's CAs, no certificate
	ServerName    string // empty: the broker's host
}

// SASL says how to authenticate; an empty Mechanism is not at all.
type SASL struct {
	Mechanism string // plain, scram-sha-256 or scram-sha-512
	User      string
	Password  Secret
}

// CreateTopics is how missing topics are created.
type CreateTopics struct {
	Partitions  int32
	Replication int16
}

func (p *readPipeline) readSink(f field) {
	if !f.set() {
		f.bad(codeMissing, "is required", "name a sink: kafka or stdout")
		return
	}
	s := f.section()
	if s == nil {
		return
	}
	kafka, stdout := s.get(SinkKafka), s.get(SinkStdout)
	unknown := s.close()
	switch {
	case kafka.set() && stdout.set():
		f.r.fault(stdout.key, codeDuplicate, stdout.path, "a pipeline has one sink, and there is kafka already", "a second sink is a second pipeline")
	case !kafka.set() && !stdout.set() && unknown == 0:
		f.bad(codeMissing, "names no sink", "name one of kafka and stdout")
	}
	if stdout.set() {
		p.Sink.Kind, p.sink = SinkStdout, stdout
		if o := stdout.section(); o != nil {
			o.close()
		}
	}
	if kafka.set() {
		p.Sink.Kind, p.sink = SinkKafka, kafka
		p.Sink.Kafka = f.r.kafka(kafka)
	}
}

func (r *reader) kafka(f field) *Kafka {
	k := &Kafka{}
	s := f.section()
	if s == nil {
		return k
	}
	k.Brokers = readBrokers(s.get("brokers"))
	k.TLS = r.kafkaTLS(s.get("tls"))
	k.SASL = r.sasl(s.get("sasl"), k.TLS.Enabled)
	k.Compression = s.get("compression").enum("lz4", "none", "gzip", "snappy", "lz4", "zstd")
	k.Linger = s.get("linger").duration(0, 0)
	k.CreateTopics = readCreateTopics(s.get("create_topics"))
	for _, item := range s.get("allow_topics").items() {
		text, ok := item.text()
		if ok && text == "" {
			item.bad(codeType, "is empty", "leave it out")
		} else if ok {
			k.AllowTopics = append(k.AllowTopics, text)
		}
	}
	s.close()
	return k
}

// readBrokers takes a list; an element that comes from a reference may hold several, separated by commas, as such
// variables usually do.
func readBrokers(f field) []string {
	const hint = "list host:port of one or more brokers: brokers: [127.0.0.1:9092]"
	if !f.set() {
		f.bad(codeMissing, "is required", hint)
		return nil
	}
	items := f.items()
	if f.value.Kind == sequence && len(items) == 0 {
		f.bad(codeMissing, "is empty", hint)
	}
	var brokers []string
	seen := map[string]bool{}
	for _, item := range items {
		text, ok := item.text()
		if !ok {
			continue
		}
		parts := []string{text}
		if hasReference(item.value.Value) {
			parts = strings.Split(text, ",")
		}
		for _, b := range parts {
			b = strings.TrimSpace(b)
			switch {
			case !hostPort(b, false):
				item.bad(codeType, item.shown()+" is not host:port", brokerHint(b, item))
			case seen[b]:
				item.bad(codeDuplicate, item.shown()+" is listed twice", "remove one of them")
			default:
				seen[b] = true
				brokers = append(brokers, b)
			}
		}
	}
	return brokers
}

func brokerHint(b string, f field) string {
	if _, _, err := net.SplitHostPort(b + ":9092"); err == nil && b != "" && !hasReference(f.value.Value) {
		return "write " + b + ":9092"
	}
	return ""
}

func (r *reader) kafkaTLS(f field) KafkaTLS {
	s := f.section()
	if s == nil {
		s = r.absent(f)
	}
	t := KafkaTLS{
		Enabled: s.get("enabled").boolean(false),
		CA:      readPEM(s.get("ca"), ""), Cert: readPEM(s.get("cert"), ""), Key: readPEM(s.get("key"), ""),
		ServerName: s.get("server_name").str(""),
	}
	checkPair(s, t.Cert, t.Key)
	if !t.Enabled && (t.CA != "" || t.Cert != "" || t.ServerName != "") {
		s.get("enabled").bad(codeUseless, "tls is not enabled, so the other keys would have no effect", "write enabled: true, or remove them")
	}
	s.close()
	return t
}

func (r *reader) sasl(f field, tls bool) SASL {
	s := f.section()
	if s == nil {
		s = r.absent(f)
	}
	mechanism, user, password := s.get("mechanism"), s.get("user"), s.get("password")
	c := SASL{
		Mechanism: mechanism.enum("", "", "plain", "scram-sha-256", "scram-sha-512"),
		User:      user.str(""), Password: password.secret(),
	}
	switch {
	case c.Mechanism == "":
		if c.User != "" && !s.fields["mechanism"].set() {
			mechanism.bad(codeMissing, "is required with user", "values are plain, scram-sha-256 and scram-sha-512")
		}
	case c.User == "" && !broken(user):
		user.bad(codeMissing, "is required with mechanism", "")
	case c.Password.Empty() && !broken(password):
		password.warn(codeRisky, "the password is empty", "")
	}
	if c.Mechanism == "plain" && !tls {
		mechanism.warn(codeRisky, "plain without tls sends the password readable over the network", "use scram-sha-512, or tls: { enabled: true }")
	}
	s.close()
	return c
}

func readCreateTopics(f field) *CreateTopics {
	const hint = "write false, or { partitions: 6, replication: 3 }"
	if !f.set() {
		return nil
	}
	if f.value.Kind == scalar {
		text, ok := f.text()
		if ok && text != "false" {
			f.bad(codeType, f.shown()+" does not say with how many partitions", hint)
		}
		return nil
	}
	s := f.section()
	if s == nil {
		return nil
	}
	partitions, replication := s.get("partitions"), s.get("replication")
	for _, k := range []field{partitions, replication} {
		if !k.set() {
			k.bad(codeMissing, "is required", hint)
		}
	}
	c := &CreateTopics{
		Partitions:  int32(partitions.number(6, 1, 1<<20)),
		Replication: int16(replication.number(3, 1, 1<<10)),
	}
	s.close()
	return c
}
