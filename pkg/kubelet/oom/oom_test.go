package oom

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"podium/pkg/kubelet/cri"
)

var (
	one = strings.Repeat("1a", 32)
	two = strings.Repeat("2b", 32)
)

func TestContainers(t *testing.T) {
	const head = "6,3161,6455849480,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/kubepods/pod1,"
	for name, tc := range map[string]struct {
		reason, record string
		want           []string
	}{
		"Cgroupfs": {"the cgroup is named by the container", head + "task_memcg=/kubepods/burstable/pod1/" + one + ",task=tail,pid=7,uid=0\n", []string{one}},
		"Systemd":  {"the scope has a prefix", head + "task_memcg=/kubepods.slice/cri-containerd-" + one + ".scope,task=tail,pid=7,uid=0\n SUBSYSTEM=x\n", []string{one}},
		"Nested":   {"a container has cgroups of its own below", head + "task_memcg=/kubepods/pod1/" + one + "/init.scope,task=tail,pid=7,uid=0\n", []string{one}},
		"Host":     {"a process of the machine's", head + "task_memcg=/system.slice/cron.service,task=cron,pid=7,uid=0\n", nil},
		"Other":    {"what else the kernel says", "6,1,2,-;eth0: renamed from task_memcg=/" + one + "\n", nil},
		"Cut":      {"half a record", head, nil},
		"Empty":    {"", "", nil},
	} {
		if diff := cmp.Diff(tc.want, containers(tc.record)); diff != "" {
			t.Errorf("%s: %s:\n%s", name, tc.reason, diff)
		}
	}
}

// records returns one record per read, as the kernel does.
type records []string

func (r *records) Read(p []byte) (int, error) {
	if len(*r) == 0 {
		return 0, io.EOF
	}
	n := copy(p, (*r)[0])
	*r = (*r)[1:]
	return n, nil
}

// ended is a runtime whose containers were all killed by a signal.
type ended struct {
	cri.Runtime
	code   int32
	reason string
}

func (e ended) ContainerStatus(_ context.Context, in *runtimeapi.ContainerStatusRequest, _ ...grpc.CallOption) (*runtimeapi.ContainerStatusResponse, error) {
	return &runtimeapi.ContainerStatusResponse{Status: &runtimeapi.ContainerStatus{Id: in.ContainerId, ExitCode: e.code, Reason: e.reason}}, nil
}

func TestTheKernelExplains(t *testing.T) {
	k := New()
	log := &records{"5,1,1,-;something else\n", "6,2,2,-;oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/kubepods/pod1/" + one + ",task=tail,pid=7,uid=0\n"}
	if err := k.listen(log); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		reason  string
		runtime ended
		id      string
		want    string
	}{
		"Killed":     {"the runtime has missed why", ended{nil, 137, "Error"}, one, "OOMKilled"},
		"Another":    {"somebody else's SIGKILL", ended{nil, 137, "Error"}, two, "Error"},
		"ByItself":   {"a child was killed, and the container ended in its own way later", ended{nil, 1, "Error"}, one, "Error"},
		"KnewItself": {"the runtime knows", ended{nil, 137, "OOMKilled"}, two, "OOMKilled"},
	} {
		out, err := k.Explain(tc.runtime).ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: tc.id})
		if err != nil || out.Status.Reason != tc.want {
			t.Errorf("%s: %s: %v, %v, want %s", name, tc.reason, out.GetStatus(), err, tc.want)
		}
	}
}

func TestOldKillsAreForgotten(t *testing.T) {
	k := New()
	k.add(one)
	for i := range remembered {
		k.add(fmt.Sprint(i))
	}
	if k.Has(one) || !k.Has("0") || len(k.ids) != remembered {
		t.Errorf("%d remembered", len(k.ids))
	}
}

func FuzzContainers(f *testing.F) {
	f.Add("6,2,2,-;oom-kill:task_memcg=/kubepods/pod1/" + one + ",task=tail\n")
	f.Fuzz(func(t *testing.T, record string) {
		for _, id := range containers(record) {
			if len(id) != 64 || !strings.Contains(record, id) {
				t.Errorf("%q", id)
			}
		}
	})
}
