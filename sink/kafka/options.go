package kafka

import (
	"crypto/tls"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/outtail/outtail/event"
	"github.com/outtail/outtail/internal/glob"
)

// Acks is how the sink answers. It is called with the sink's lock held: an implementation must not call the sink.
type Acks interface {
	Acked(seq uint64)
	Failed(seq uint64, err error)
	Reopened(seq uint64)
}

// Options are what a sink is made of. The zero value of everything but Brokers and Acks is usable.
type Options struct {
	// Brokers are the seed addresses, host:port.
	Brokers []string
	TLS     TLS
	SASL    SASL
	// Compression is none, gzip, snappy, lz4 or zstd; empty is none.
	Compression string
	// Linger is how long a partition waits for more records before a batch leaves. Batches form by themselves while requests
	// are in flight, so 0 is right unless requests per second matter more than latency.
	Linger time.Duration
	// CreateTopics, where not nil, creates missing topics.
	CreateTopics *CreateTopics
	// AllowTopics are globs (*, ?); empty allows all names but those beginning with "__".
	AllowTopics []string
	// MaxBufferedBytes bounds keys, values and headers of what is not acked yet; Send blocks above it. 0 is no bound. An
	// event larger than it is admitted alone.
	MaxBufferedBytes int64
	// ClientID is what brokers log; empty is "outtail".
	ClientID string
	Logger   *slog.Logger
	Acks     Acks
	// Conditions is told what keeps the sink from working; nil clears. Called with the sink's lock held.
	Conditions func(key string, f *event.Fault)
	Observe    Observe
}

// Observe are callbacks for metrics; nil ones are not called. They must be cheap and must not call the sink.
type Observe struct {
	// Unknown counts events whose outcome became unknown because a connection died under a produce request: at most those
	// that were in flight. The client sends them again.
	Unknown func(events int)
	// Error counts, by class, errors that are not told by Failed: connections, lookups, conditions.
	Error func(c event.Class)
}

// TLS says how to reach brokers by TLS. Files are PEM.
type TLS struct {
	Enabled    bool
	CA         string // file; empty uses the system's
	Cert, Key  string // files; empty is no client certificate
	ServerName string // empty is the broker's host name
}

// SASL says how to authenticate.
type SASL struct {
	Mechanism string // plain, scram-sha-256, scram-sha-512; empty is none
	User      string
	Password  string
}

// CreateTopics is how a missing topic is created.
type CreateTopics struct {
	Partitions  int32
	Replication int16
}

// config is the checked form of Options.
type config struct {
	Options
	tls      *tls.Config
	sasl     sasl.Mechanism
	compress kgo.Compressor // nil: as it is
	allow    []glob.Pattern
}

func (o Options) check() (*config, error) {
	c := &config{Options: o}
	if len(o.Brokers) == 0 {
		return nil, usage("sink.kafka.brokers", "no broker is named", nil)
	}
	if o.Acks == nil {
		return nil, usage("sink.kafka", "nobody takes the acks", nil)
	}
	var err error
	switch o.Compression {
	case "", "none":
	case "gzip":
		c.compress, err = kgo.DefaultCompressor(kgo.GzipCompression())
	case "snappy":
		c.compress, err = kgo.DefaultCompressor(kgo.SnappyCompression())
	case "lz4":
		c.compress = newLZ4()
	case "zstd":
		c.compress, err = kgo.DefaultCompressor(kgo.ZstdCompression())
	default:
		return nil, usage("sink.kafka.compression", "is none of none, gzip, snappy, lz4, zstd", nil)
	}
	if err != nil {
		return nil, err
	}
	for _, g := range o.AllowTopics {
		c.allow = append(c.allow, glob.Compile(g))
	}
	if c.tls, err = o.TLS.load(); err != nil {
		return nil, err
	}
	if c.sasl, err = o.SASL.mechanism(); err != nil {
		return nil, err
	}
	if c.ClientID == "" {
		c.ClientID = "outtail"
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Conditions == nil {
		c.Conditions = func(string, *event.Fault) {}
	}
	if c.Observe.Unknown == nil {
		c.Observe.Unknown = func(int) {}
	}
	if c.Observe.Error == nil {
		c.Observe.Error = func(event.Class) {}
	}
	return c, nil
}

// allowed says whether events may go to a topic of this name.
func (c *config) allowed(topic string) bool {
	if len(c.allow) == 0 {
		return !strings.HasPrefix(topic, "__") // Kafka's own
	}
	return slices.ContainsFunc(c.allow, func(g glob.Pattern) bool { return g.MatchString(topic) })
}
