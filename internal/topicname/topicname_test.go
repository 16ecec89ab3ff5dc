package topicname

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNames(t *testing.T) {
	for name, want := range map[string]bool{
		"orders": true, "Orders.v1_x-Y": true, "...": true, strings.Repeat("x", 249): true,
		"": false, ".": false, "..": false, "a b": false, "a/b": false, "é": false, strings.Repeat("x", 250): false,
	} {
		require.Equal(t, want, Valid(name), "%q", name)
	}
}
