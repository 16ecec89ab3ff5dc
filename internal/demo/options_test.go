package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/outtail/outtail/event"
)

func environment(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(name string) string { return m[name] }
}

func TestOptionsComeFromTheEnvironment(t *testing.T) {
	o, err := FromEnv(environment())
	require.NoError(t, err)
	o = o.withDefaults()
	require.Equal(t, 200, o.Rate)
	require.Equal(t, 15*time.Second, o.KillEvery)
	require.Zero(t, o.Duration, "without DEMO_SECONDS it runs until interrupted")

	o, err = FromEnv(environment("DEMO_SECONDS", "40", "DEMO_RATE", "50", "DEMO_KILL_SECONDS", "3", "OUTTAIL_MAVEN", "https://maven.test/x"))
	require.NoError(t, err)
	require.Equal(t, 40*time.Second, o.Duration)
	require.Equal(t, 50, o.withDefaults().Rate)
	require.Equal(t, 3*time.Second, o.withDefaults().KillEvery)
	require.Equal(t, "https://maven.test/x", o.Repository)
}

func TestUnusableSettingsAreUsageFaults(t *testing.T) {
	for _, tc := range []struct{ name, value string }{
		{"DEMO_SECONDS", "forty"}, {"DEMO_SECONDS", "0"}, {"DEMO_SECONDS", "-1"}, {"DEMO_SECONDS", "99999999"},
		{"DEMO_RATE", "1e3"}, {"DEMO_RATE", "20001"}, {"DEMO_KILL_SECONDS", "15s"},
	} {
		t.Run(tc.name+"="+tc.value, func(t *testing.T) {
			_, err := FromEnv(environment(tc.name, tc.value))
			fault := event.AsFault(err)
			require.NotNil(t, fault)
			require.Equal(t, CodeSetting, fault.Code)
			require.Equal(t, event.Usage, fault.Class)
			require.Equal(t, tc.name, fault.Place)
			require.Contains(t, fault.Hint, tc.name)
		})
	}
}
