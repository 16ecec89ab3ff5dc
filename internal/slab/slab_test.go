package slab

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTakeHasRoomAndWastesLittle(t *testing.T) {
	for n := 0; n < 3<<20; n += 999 {
		b := Take(n)
		require.Empty(t, b)
		require.GreaterOrEqual(t, cap(b), n)
		if n >= smallest {
			require.LessOrEqual(t, cap(b), n*5/4+1)
		}
	}
}

func TestTwoAtOnceAreApart(t *testing.T) {
	a := Take(10_000)[:10_000]
	b := Take(10_000)[:10_000]
	for i := range a {
		a[i], b[i] = 1, 2
	}
	require.NotContains(t, a, byte(2))
	Give(a)
	c := Take(10_000)[:10_000]
	for i := range c {
		c[i] = 3
	}
	require.NotContains(t, b, byte(3))
}

func TestGiveTakesOnlyItsOwnSizes(t *testing.T) {
	Give(nil)
	Give(make([]byte, 5000))
	for range 100 {
		require.Contains(t, sizes, cap(Take(5000)))
	}
}
