package apiserver

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"podium/pkg/apiserver/authn"
	"podium/pkg/cluster/pki"
)

// parsed returns the authentication flags of command-line arguments.
func parsed(t *testing.T, args ...string) *authnFlags {
	t.Helper()
	o := &authnFlags{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	o.flags(fs)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	if err := o.parse(slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	return o
}

// authority creates a CA and returns the file and the text of its certificate.
func authority(t *testing.T, name string) (file, text string) {
	t.Helper()
	dir := t.TempDir()
	if _, err := pki.OpenAuthority(dir, name, time.Now); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, name+".crt"))
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name+".crt"), string(data)
}

func TestWhatIsPublishedForOtherServers(t *testing.T) {
	clients, clientsText := authority(t, "clients")
	proxies, proxiesText := authority(t, "proxies")
	for name, tc := range map[string]struct {
		args []string
		want map[string]string
	}{
		"nothing": {nil, map[string]string{}},
		"clients": {[]string{"--client-ca-file=" + clients}, map[string]string{"client-ca-file": clientsText}},
		"clients and proxies": {
			[]string{
				"--client-ca-file=" + clients, "--requestheader-client-ca-file=" + proxies, "--requestheader-allowed-names=front",
				"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group,X-Team", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
			},
			map[string]string{
				"client-ca-file": clientsText, "requestheader-client-ca-file": proxiesText, "requestheader-allowed-names": `["front"]`,
				"requestheader-username-headers": `["X-Remote-User"]`, "requestheader-group-headers": `["X-Remote-Group","X-Team"]`,
				"requestheader-extra-headers-prefix": `["X-Remote-Extra-"]`, "requestheader-uid-headers": `[]`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, parsed(t, tc.args...).published()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMaxTokenExpiration(t *testing.T) {
	for args, want := range map[string]time.Duration{
		"": 8760 * time.Hour, "--service-account-max-token-expiration=0": 0, "--service-account-max-token-expiration=1h": time.Hour,
	} {
		if got := parsed(t, strings.Fields(args)...).maxToken; got != want {
			t.Errorf("%q: %v, want %v", args, got, want)
		}
	}
	for _, life := range []time.Duration{time.Minute, 1 << 33 * time.Second, -time.Hour} {
		o := &authnFlags{maxToken: life}
		if err := o.parse(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "--service-account-max-token-expiration") {
			t.Errorf("%v: %v", life, err)
		}
	}
}

// A client certificate must not be accepted as a front proxy's: one CA may sign
// both only if --requestheader-allowed-names is set.
func TestClientsAreNoProxies(t *testing.T) {
	_, clients := authority(t, "clients")
	_, proxies := authority(t, "proxies")
	write := func(file, text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clientCA, proxyCA := filepath.Join(t.TempDir(), "clients.crt"), filepath.Join(t.TempDir(), "proxies.crt")
	for name, tc := range map[string]struct {
		clients, proxies string
		names            []string
		ok               bool
	}{
		"apart":                          {clients, proxies, nil, true},
		"the same":                       {clients, clients, nil, false},
		"the same, with names":           {clients, clients, []string{"front"}, true},
		"clients among the proxies'":     {clients, proxies + clients, nil, false},
		"proxies among the clients'":     {clients + "\n" + proxies, proxies, nil, false},
		"clients among them, with names": {clients, proxies + clients, []string{"front"}, true},
	} {
		write(clientCA, tc.clients)
		write(proxyCA, tc.proxies)
		o := &authnFlags{clientCA: clientCA, proxyCA: proxyCA, proxy: authn.FrontProxyConfig{UserHeaders: []string{"X-Remote-User"}, Names: tc.names}}
		err := o.parse(slog.New(slog.DiscardHandler))
		if (err == nil) != tc.ok || err != nil && !strings.Contains(err.Error(), "overlapping certificates") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// CA bundles that begin to overlap while the server runs are rejected: the
// previous ones stay in force, and the error is logged.
func TestClientsDoNotBecomeProxies(t *testing.T) {
	_, clients := authority(t, "clients")
	_, proxies := authority(t, "proxies")
	clientCA, proxyCA := filepath.Join(t.TempDir(), "clients.crt"), filepath.Join(t.TempDir(), "proxies.crt")
	for file, text := range map[string]string{clientCA: clients, proxyCA: proxies} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, file := range map[string]string{"proxies": proxyCA, "clients": clientCA} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			get, err := trustFiles(clientCA, proxyCA, nil, slog.New(slog.NewTextHandler(&log, nil)))
			if err != nil {
				t.Fatal(err)
			}
			before := get()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(clients+proxies), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
			if get() != before || !strings.Contains(log.String(), "overlapping certificates") {
				t.Errorf("%s: changed %v, logged %q", name, get() != before, log.String())
			}
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// The audiences of the server are --api-audiences, or else the issuers.
func TestNamesOfTheServer(t *testing.T) {
	for want, args := range map[string][]string{
		"https://kubernetes.default.svc.cluster.local": nil,
		"https://a https://b":                          {"--service-account-issuer=https://a", "--service-account-issuer=https://b"},
		"api other":                                    {"--service-account-issuer=https://a", "--api-audiences=api,other"},
	} {
		if got := strings.Join(parsed(t, args...).build().Audiences, " "); got != want {
			t.Errorf("%v: %s, want %s", args, got, want)
		}
	}
}
