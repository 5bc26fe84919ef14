package security

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// observerEnv is the environment variable with the time for which this program reads one object
// and measures, instead of running tests. The observer is a process with a higher scheduling
// priority: it stands for a client on another machine, which does not compete with the tenant's
// programs for this machine's cores.
const observerEnv = "PODIUM_TEST_OBSERVE"

// preferred is the niceness of processes that stand for programs on other machines: that of the
// daemons.
const preferred = -10

// prefer sets the niceness of this process's session, if the kernel schedules by sessions.
func prefer(niceness int) {
	_ = os.WriteFile("/proc/self/autogroup", []byte(strconv.Itoa(niceness)), 0)
}

// observation is the observer's output as JSON.
type observation struct {
	Latencies latencies `json:"latencies"` // of answers with 200, in nanoseconds
	Failures  []string  `json:"failures"`
}

// observe runs an observer that reads the ConfigMap x of b's namespace. The test fails for each
// response other than 200.
func observe(t *testing.T, b *tenant, lasts time.Duration) latencies {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), observerEnv+"="+lasts.String(), "PODIUM_TEST_TOKEN="+b.token, "PODIUM_TEST_PATH="+b.path("configmaps")+"/x")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.Output()
	check(t, err)
	var o observation
	check(t, json.Unmarshal(out, &o))
	for _, failure := range o.Failures {
		t.Errorf("GET: %s", failure)
	}
	return o.Latencies
}

// runObserver is the observer's main function.
func runObserver(lasts time.Duration) error {
	prefer(preferred)
	b := &tenant{token: os.Getenv("PODIUM_TEST_TOKEN"), http: tenantClient()}
	o := observation{}
	for end := time.Now().Add(lasts); time.Now().Before(end); {
		began := time.Now()
		code, text := b.do("GET", os.Getenv("PODIUM_TEST_PATH"), "", "")
		if code == http.StatusOK {
			o.Latencies = append(o.Latencies, time.Since(began))
		} else if len(o.Failures) < 20 {
			o.Failures = append(o.Failures, fmt.Sprintf("%d %.200s", code, text))
		}
	}
	return json.NewEncoder(os.Stdout).Encode(o)
}
