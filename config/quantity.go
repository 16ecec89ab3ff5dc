package config

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes.
type Size int64

var units = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"kB", 1e3}, {"KB", 1e3}, {"B", 1},
}

// String has the largest binary unit that divides the size.
func (s Size) String() string {
	for _, u := range units[:4] {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}

// ParseSize reads a whole or decimal number with a unit: 16MiB, 1.5GB, 512B. 0 needs none.
func ParseSize(text string) (Size, error) {
	text = strings.TrimSpace(text)
	if text == "0" {
		return 0, nil
	}
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(n) || strings.ContainsAny(number, "xXpP_") {
			break
		}
		bytes := n * float64(u.bytes)
		switch {
		case n < 0:
			return 0, errors.New("is below 0")
		case bytes >= math.MaxInt64:
			return 0, errors.New("is too large")
		}
		return Size(bytes), nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, errors.New("has no unit")
	}
	return 0, errors.New("is no size")
}

// ParseDuration reads Go's durations (100ms, 1m30s, 24h) and whole days (7d). 0 needs no unit.
func ParseDuration(text string) (time.Duration, error) {
	text = strings.TrimSpace(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return time.Duration(n) * 24 * time.Hour, nil
		}
	}
	d, err := time.ParseDuration(text)
	switch {
	case err == nil && d < 0:
		return 0, errors.New("is below 0")
	case err == nil:
		return d, nil
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, errors.New("has no unit")
	}
	return 0, fmt.Errorf("is no duration")
}
