package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	authorizationv1 "k8s.io/api/authorization/v1"

	"podium/pkg/client"
	"podium/pkg/scheme"
	"podium/pkg/version"
)

// settings are the configuration of the test daemon.
type settings struct {
	Options `json:"-"`
	port    int
	names   []string
	labels  map[string]string
	grace   time.Duration
	on      bool
	Deep    struct {
		Limit int `json:"limit"`
	} `json:"deep"`
}

func command(s *settings, run func(*cobra.Command) error) *cobra.Command {
	cmd := &cobra.Command{Use: "kube-thing", RunE: func(cmd *cobra.Command, _ []string) error { return run(cmd) }}
	s.AddFlags(cmd.Flags())
	cmd.Flags().IntVar(&s.port, "secure-port", 1, "")
	cmd.Flags().StringSliceVar(&s.names, "cluster-dns", nil, "")
	cmd.Flags().StringToStringVar(&s.labels, "node-labels", nil, "")
	cmd.Flags().DurationVar(&s.grace, "pod-cidr-grace", 0, "")
	cmd.Flags().BoolVar(&s.on, "leader-elect", false, "")
	return cmd
}

const head = "apiVersion: config.podium.dev/v1alpha1\nkind: KubeThingConfiguration\n"

func TestConfigFile(t *testing.T) {
	for _, test := range []struct {
		name, file string
		args       []string
		want       string
		err        []string
	}{
		{"every type of value", head + "securePort: 10259\nclusterDNS: [10.0.0.1, 10.0.0.2]\nnodeLabels: {a: b, c: d}\npodCidrGrace: 90s\nleaderElect: true\nv: 4\ndeep: {limit: 7}\n", nil,
			"10259 [10.0.0.1 10.0.0.2] map[a:b c:d] 1m30s true 4 7", nil},
		{"numbers stay whole", head + "securePort: 1000000000\n", nil, "1000000000 [] map[] 0s false 0 0", nil},
		{"flags win", head + "securePort: 2\nclusterDNS: [10.0.0.1]\n", []string{"--secure-port=3", "--cluster-dns=10.0.0.9"}, "3 [10.0.0.9] map[] 0s false 0 0", nil},
		{"an unknown key", head + "securePrt: 2\n", nil, "", []string{"securePrt"}},
		{"what is no setting", head + "version: true\n", nil, "", []string{"version"}},
		{"an unknown key below", head + "deep: {limits: 2}\n", nil, "", []string{"limits"}},
		{"all mistakes at once", head + "securePort: x\nleaderElect: maybe\n", nil, "", []string{"securePort: invalid value", "leaderElect: invalid value"}},
		{"a key twice", head + "securePort: 1\nsecurePort: 2\n", nil, "", []string{"securePort"}},
		{"another kind", "apiVersion: config.podium.dev/v1alpha1\nkind: KubeletConfiguration\n", nil, "", []string{"kind: KubeThingConfiguration"}},
		{"upstream's version", "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeThingConfiguration\n", nil, "", []string{"apiVersion: config.podium.dev/v1alpha1"}},
		{"no map", "- a\n", nil, "", []string{"must be a map"}},
		{"nothing", "", nil, "", []string{"apiVersion"}},
		{"a list for a number", head + "securePort: [1]\n", nil, "", []string{"a list is not understood"}},
		{"null", head + "securePort: null\n", nil, "", []string{"securePort"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config")
			if err := os.WriteFile(path, []byte(test.file), 0o600); err != nil {
				t.Fatal(err)
			}
			s := &settings{}
			cmd := command(s, func(cmd *cobra.Command) error { return LoadConfig(cmd, s.ConfigFile, s) })
			cmd.SetArgs(append(test.args, "--config", path))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.Execute()
			for _, text := range test.err {
				if err == nil || !strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), path) {
					t.Errorf("error %v, want %q and the file", err, text)
				}
			}
			if len(test.err) > 0 {
				return
			}
			if got := fmt.Sprint(s.port, s.names, s.labels, s.grace, s.on, s.Verbosity, s.Deep.Limit); err != nil || got != test.want {
				t.Errorf("%v\n got %s\nwant %s", err, got, test.want)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	s := &settings{}
	cmd := command(s, func(*cobra.Command) error { return nil })
	cmd.SetArgs([]string{"--secure-port=7", "--cluster-dns=10.0.0.1,10.0.0.2", "--node-labels=a=b,c=d", "--pod-cidr-grace=90s", "--leader-elect"})
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(Settings(cmd.Flags()))
	want := `{"clusterDns":["10.0.0.1","10.0.0.2"],"leaderElect":true,"loggingFormat":"text","nodeLabels":{"a":"b","c":"d"},"podCidrGrace":"1m30s","securePort":7,"v":0}`
	if err != nil || string(got) != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add([]byte(head + "securePort: 10259\nclusterDNS: [10.0.0.1]\nnodeLabels: {a: b}\ndeep: {limit: 7}\n"))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, data []byte) {
		s := &settings{}
		cmd := command(s, nil)
		_ = applyConfig("kube-thing", cmd.Flags(), data, s)   // any error will do
		_ = applyConfig("kube-thing", cmd.Flags(), data, nil) // and without fields
	})
}

func TestExecute(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name   string
		ctx    context.Context
		args   []string
		err    error
		code   int
		stderr string
	}{
		{"all is well", t.Context(), nil, nil, 0, ""},
		{"it broke", t.Context(), nil, errors.New("no disk: buy one"), 1, "Error: no disk: buy one\n"},
		{"asked to end", cancelled, nil, context.Canceled, 0, ""},
		{"a wrong flag", t.Context(), []string{"--bogus"}, nil, 1, "Error: unknown flag: --bogus\nSee 'kube-thing --help' for the flags.\n"},
		{"a wrong value", t.Context(), []string{"--logging-format=xml"}, nil, 1,
			"Error: invalid argument \"xml\" for \"--logging-format\" flag: \"xml\" is neither text nor json\nSee 'kube-thing --help' for the flags.\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := command(&settings{}, func(*cobra.Command) error { return test.err })
			cmd.SetArgs(append([]string{}, test.args...))
			var stderr bytes.Buffer
			code := Execute(test.ctx, cmd, &stderr)
			if code != test.code || stderr.String() != test.stderr {
				t.Errorf("code %d, %q", code, stderr.String())
			}
		})
	}
}

func TestVersion(t *testing.T) {
	cmd := command(&settings{}, func(*cobra.Command) error { return errors.New("it ran") })
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--version"})
	if code := Execute(t.Context(), cmd, &out); code != 0 || out.String() != "Kubernetes "+version.Podium+"\n" {
		t.Errorf("code %d, %q", code, &out)
	}
}

func TestLogger(t *testing.T) {
	for _, test := range []struct {
		args  []string
		want  string
		debug bool
	}{
		{nil, "msg=hello", false},
		{[]string{"-v=4"}, "msg=hello", true},
		{[]string{"--logging-format=json", "--v=3"}, `"msg":"hello"`, false},
	} {
		o := &Options{}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.AddFlags(fs)
		if err := fs.Parse(test.args); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		log := o.Logger(&out)
		log.Info("hello")
		log.Debug("details")
		if !strings.Contains(out.String(), test.want) || strings.Contains(out.String(), "details") != test.debug {
			t.Errorf("%v: %s", test.args, &out)
		}
	}
}

func TestHealth(t *testing.T) {
	h := &Health{}
	h.Add("sync", func() error { return errors.New("secret detail") })
	h.AddLive("loop", func() error { return nil })
	for _, test := range []struct {
		path string
		code int
		want string
	}{
		{"/healthz", 200, "ok"},
		{"/livez?verbose", 200, "[+]ping ok\n[+]loop ok\nlivez check passed\n"},
		{"/readyz", 500, "[+]ping ok\n[-]sync failed: reason withheld\n[+]loop ok\nreadyz check failed\n"},
		{"/readyz?verbose&exclude=sync", 200, "[+]ping ok\n[+]sync excluded: ok\n[+]loop ok\nreadyz check passed\n"},
		{"/livez?verbose&exclude=x", 200, "[+]ping ok\n[+]loop ok\nwarn: some health checks cannot be excluded: no matches for \"x\"\nlivez check passed\n"},
		{"/readyz/loop", 200, "ok"},
		{"/readyz/sync", 500, "internal server error: secret detail\n"},
		{"/livez/sync", 404, "404 page not found\n"},
	} {
		w := httptest.NewRecorder()
		Mux(h, nil).ServeHTTP(w, httptest.NewRequest("GET", test.path, nil))
		if diff := cmp.Diff(test.want, w.Body.String()); w.Code != test.code || diff != "" {
			t.Errorf("%s: %d\n%s", test.path, w.Code, diff)
		}
	}
	if h.Live() != nil || h.Ready() == nil {
		t.Error(h.Live(), h.Ready())
	}
}

// serveLocal serves on a loopback port until stop is called.
func serveLocal(t *testing.T, cfg ServeConfig) (addr string, stop func() error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Listener, cfg.Log = ln, slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, cfg) }()
	return ln.Addr().String(), func() error { cancel(); return <-done }
}

func TestServeEndsInGoodOrder(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	addr, stop := serveLocal(t, ServeConfig{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-r.Context().Done() // ctx of long requests ends at once
		<-release
		_, _ = io.WriteString(w, "done")
	})})
	got := make(chan string, 1)
	go func() {
		resp, err := http.Get("http://" + addr)
		if err != nil {
			got <- err.Error()
			return
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		got <- fmt.Sprint(string(body), err)
	}()
	<-started
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	close(release)
	if text := <-got; text != "done<nil>" {
		t.Errorf("the request under way got %s", text)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestServeReportsListenErrors(t *testing.T) {
	addr, stop := serveLocal(t, ServeConfig{Handler: http.NotFoundHandler()})
	err := Serve(t.Context(), ServeConfig{Address: addr, Handler: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "address already in use") {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

func TestTLS(t *testing.T) {
	ca := newCA(t)
	dir := t.TempDir()
	caFile, certFile, keyFile := filepath.Join(dir, "ca"), filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	writeFile(t, caFile, ca.pem)
	ca.issue(t, certFile, keyFile, "first")
	cfg, err := (&Serving{CertFile: certFile, KeyFile: keyFile, ClientCA: caFile}).TLS()
	if err != nil {
		t.Fatal(err)
	}
	h := &Health{}
	mux := Mux(h, Metrics())
	access := &Access{Open: openPaths()}
	addr, stop := serveLocal(t, ServeConfig{TLS: cfg, Handler: access.Guard(mux, api(t, "someone"), nil, slog.New(slog.DiscardHandler))})
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.pem)
	get := func(path string, certs ...tls.Certificate) (int, string) {
		tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: certs}, ForceAttemptHTTP2: true, DisableKeepAlives: true}
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Get("https://" + addr + path)
		if err != nil {
			return 0, err.Error()
		}
		defer resp.Body.Close()
		return resp.StatusCode, resp.TLS.PeerCertificates[0].Subject.CommonName
	}
	clientCert, other := ca.pair(t, "someone"), ca.pair(t, "other")
	stranger := newCA(t).pair(t, "stranger")
	if code, _ := get("/healthz"); code != 200 {
		t.Errorf("anonymous health: %d", code)
	}
	if code, _ := get("/metrics"); code != 401 {
		t.Errorf("anonymous metrics: %d", code)
	}
	if code, name := get("/metrics", clientCert); code != 200 || name != "first" {
		t.Errorf("metrics: %d %s", code, name)
	}
	if code, _ := get("/metrics", other); code != 403 {
		t.Errorf("metrics for one who may not: %d", code)
	}
	if code, _ := get("/metrics", stranger); code == 200 {
		t.Errorf("a stranger's certificate: %d", code)
	}
	ca.issue(t, certFile, keyFile, "second")
	name := ""
	for deadline := time.Now().Add(10 * time.Second); name != "second" && time.Now().Before(deadline); {
		_, name = get("/healthz")
	}
	if name != "second" {
		t.Errorf("the new certificate is not served: %s", name)
	}
}

// api is an API server that lets one user read metrics and nothing else.
func api(t *testing.T, reader string) *client.Client {
	t.Helper()
	s := scheme.New()
	c, err := client.New(s, client.Config{Servers: []string{"http://api"}, Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		obj, _, err := s.Decode(body, scheme.Protobuf, nil)
		if err != nil {
			return nil, err
		}
		review := obj.(*authorizationv1.SubjectAccessReview)
		what := review.Spec.NonResourceAttributes
		review.Status.Allowed = review.Spec.User == reader && *what == authorizationv1.NonResourceAttributes{Verb: "get", Path: "/metrics"}
		out, err := s.Encode(review, scheme.Protobuf)
		w := httptest.NewRecorder()
		w.Header().Set("Content-Type", scheme.Protobuf)
		w.Write(out)
		return w.Result(), err
	})})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTLSFlags(t *testing.T) {
	for _, row := range []struct {
		reason string
		args   string
		want   string // of the error
	}{
		{"the defaults", "", ""},
		{"TLS 1.3 only", "--tls-min-version=VersionTLS13", ""},
		{"one suite", "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", ""},
		{"an old name", "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305", ""},
		{"an old version", "--tls-min-version=VersionTLS11", "want VersionTLS12 or VersionTLS13"},
		{"no forward secrecy", "--tls-cipher-suites=TLS_RSA_WITH_AES_128_GCM_SHA256", "want some of TLS_ECDHE_"},
		{"no authenticated encryption", "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA", "want some of TLS_ECDHE_"},
		{"HTTP/2 would not work", "--tls-cipher-suites=TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "HTTP/2 needs"},
		{"a key without its certificate", "--tls-private-key-file=k", "needs its key"},
	} {
		s := &Serving{}
		fs := pflag.NewFlagSet("", pflag.ContinueOnError)
		s.AddFlags(fs)
		if err := fs.Parse(strings.Fields(row.args)); err != nil {
			t.Fatal(err)
		}
		cfg, err := s.TLS()
		if row.want != "" {
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%s: %v, want %s", row.reason, err, row.want)
			}
			continue
		}
		if err != nil || cfg.MinVersion < tls.VersionTLS12 || len(cfg.CipherSuites) == 0 {
			t.Errorf("%s: %v, %+v", row.reason, err, cfg)
		}
	}
}

func TestSelfSigned(t *testing.T) {
	cfg, err := (&Serving{}).TLS()
	if err != nil {
		t.Fatal(err)
	}
	cert, err := cfg.GetCertificate(nil)
	if err != nil || len(cert.Certificate) != 1 {
		t.Error(err)
	}
	if _, err := (&Serving{CertFile: "a"}).TLS(); err == nil {
		t.Error("a certificate without its key")
	}
}

func TestSystemd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Setenv("NOTIFY_SOCKET", socket)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", fmt.Sprint(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Watchdog(ctx, func() error { return nil }) }()
	NotifyReady()
	want := map[string]bool{"READY=1": true, "WATCHDOG=1": true}
	buf := make([]byte, 100)
	for len(want) > 0 {
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			t.Fatalf("still waiting for %v: %v", want, err)
		}
		delete(want, string(buf[:n]))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestWithoutAWatchdogNothingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if err := Watchdog(ctx, func() error { t.Error("asked"); return nil }); err != nil {
			t.Error(err)
		}
	})
}
