package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"
	appsv1 "k8s.io/api/apps/v1"

	"podium/pkg/client"
)

const dnsAddress = "10.96.0.10:53"

// Cluster names as pods resolve them, with the resolver of a program, including search paths.
func TestNamesFromAPod(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(webOf(1) + `
---
apiVersion: v1
kind: Service
metadata: {name: direct}
spec: {clusterIP: None, selector: {app: web}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: alias}
spec: {type: ExternalName, externalName: web.` + s.name + `.svc.cluster.local}
---
apiVersion: v1
kind: Pod
metadata: {name: box, labels: {app: box}}
spec:
  hostname: crate
  subdomain: boxes
  containers: [{name: web, image: "localhost/podium/web:v1"}]
---
apiVersion: v1
kind: Service
metadata: {name: boxes}
spec: {clusterIP: None, selector: {app: box}, ports: [{name: none, port: 1}]}
`)
	s.rolledOut("web")
	box := s.ready("box")
	web := s.pods("app=web")[0]
	in := func(args ...string) (string, error) {
		return the.try(t.Context(), "", the.bin("podium"), append([]string{"-n", s.name, "exec", "box", "--", "/web", "get"}, args...)...)
	}

	for _, url := range []string{
		"http://web/", "http://web." + s.name + "/", "http://web." + s.name + ".svc.cluster.local/",
		"http://direct:8080/", "http://alias/",
	} {
		eventually(t, 20*time.Second, url+" answers from a pod", func() error {
			got, err := in(url)
			if err == nil && strings.TrimSpace(got) != web.Name {
				err = fmt.Errorf("it says %q, not %s", got, web.Name)
			}
			return err
		})
	}
	eventually(t, 20*time.Second, "a pod by its own name", func() error {
		got, err := in("http://crate.boxes:8080/")
		if err == nil && strings.TrimSpace(got) != box.Spec.Hostname {
			err = fmt.Errorf("it says %q, not %s", got, box.Spec.Hostname)
		}
		return err
	})
	if got, err := in("http://no-such-service/"); err == nil {
		t.Errorf("a name that nobody has answers %q", got)
	}
}

// DNS records, over UDP and TCP.
func TestRecords(t *testing.T) {
	t.Parallel()
	s := newSpace(t)
	s.apply(webOf(1) + `
---
apiVersion: v1
kind: Service
metadata: {name: named}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
`)
	s.rolledOut("web")
	ip := s.service("named").Spec.ClusterIP
	host := "named." + s.name + ".svc.cluster.local."
	back, err := dns.ReverseAddr(ip)
	if err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"udp", "tcp"} {
		for _, q := range []struct {
			name string
			kind uint16
			want string
		}{
			{host, dns.TypeA, host + " A " + ip},
			{"_http._tcp." + host, dns.TypeSRV, "_http._tcp." + host + " SRV 0 100 80 " + host},
			{back, dns.TypePTR, back + " PTR " + host},
			{"none." + s.name + ".svc.cluster.local.", dns.TypeA, "NXDOMAIN"},
		} {
			eventually(t, 20*time.Second, network+" "+q.name, func() error {
				got, err := records(network, q.name, q.kind)
				if err == nil && got != q.want {
					err = fmt.Errorf("it is %q, not %q", got, q.want)
				}
				return err
			})
		}
	}
}

// records returns the answer in short form, or the response code if there is none.
func records(network, name string, kind uint16) (string, error) {
	c := dns.Client{Net: network, Timeout: 2 * time.Second}
	answer, _, err := c.Exchange((&dns.Msg{}).SetQuestion(name, kind), dnsAddress)
	if err != nil {
		return "", err
	}
	lines := []string{}
	for _, rr := range answer.Answer {
		fields := strings.Fields(rr.String())
		lines = append(lines, strings.Join(slices.Delete(fields, 1, 3), " ")) // without TTL and class
	}
	if len(lines) == 0 {
		return dns.RcodeToString[answer.Rcode], nil
	}
	return strings.Join(lines, "; "), nil
}

// A server that is replaced loses no query.
func TestNamesWhileServersAreReplaced(t *testing.T) {
	api := the.client(t)
	deployments := client.For[*appsv1.Deployment](api).In("kube-system")
	patch := fmt.Sprintf(`{"spec":{"template":{"metadata":{"annotations":{"test.podium.dev/at":%q}}}}}`, time.Now().Format(time.RFC3339Nano))
	began, err := deployments.Patch(t.Context(), "cluster-dns", "application/strategic-merge-patch+json", []byte(patch))
	if err != nil {
		t.Fatal(err)
	}
	asked, failed := 0, 0
	eventually(t, 90*time.Second, "cluster-dns is replaced", func() error {
		asked++
		if got, err := records("udp", "kubernetes.default.svc.cluster.local.", dns.TypeA); err != nil || !strings.Contains(got, "10.96.0.1") {
			failed++
			t.Logf("question %d: %q, %v", asked, got, err)
		}
		d, err := deployments.Get(t.Context(), "cluster-dns")
		if err == nil && (d.Status.ObservedGeneration < began.Generation || d.Status.UpdatedReplicas < 2 || d.Status.ReadyReplicas < 2 || d.Status.Replicas > 2) {
			err = fmt.Errorf("it stands at %+v", d.Status)
		}
		return err
	})
	t.Logf("%d questions while both servers were replaced, %d without an answer", asked, failed)
	if failed > 0 {
		t.Errorf("%d of %d questions were not answered", failed, asked)
	}
}
