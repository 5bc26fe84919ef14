package machine

import (
	"os"
	"testing"
)

// Control planes have the same front-proxy CA without exchanging its key, also
// those of clusters that were made before there was one.
func TestControlPlanesDeriveTheSameFrontProxyCA(t *testing.T) {
	host, cfg := newHost(t)
	m, err := newMachine(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	first := readCert(t, m, frontProxyCA)
	key, err := os.ReadFile(m.at(pkiDir, frontProxyCA+".key"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{".crt", ".key"} { // as in a cluster of an earlier version, or on another machine
		if err := os.Remove(m.at(pkiDir, frontProxyCA+name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.identities(); err != nil {
		t.Fatal(err)
	}
	again, err := os.ReadFile(m.at(pkiDir, frontProxyCA+".key"))
	if err != nil || string(again) != string(key) {
		t.Errorf("another key, %v", err)
	}
	if second := readCert(t, m, frontProxyCA); second.Subject.String() != first.Subject.String() || second.Equal(readCert(t, m, clusterCA)) {
		t.Errorf("authorities %s and %s", first.Subject, second.Subject)
	}
	if client := readCert(t, m, frontProxyClient); client.CheckSignatureFrom(readCert(t, m, frontProxyCA)) != nil || client.Subject.CommonName != "front-proxy-client" {
		t.Errorf("the API server's certificate is of %s by %s", client.Subject, client.Issuer)
	}
	conf := m.apiserver().conf
	for key, want := range map[string]string{"requestheaderClientCaFile": frontProxyCA + ".crt", "proxyClientCertFile": frontProxyClient + ".crt", "proxyClientKeyFile": frontProxyClient + ".key"} {
		if conf[key] != pkiFile(want) {
			t.Errorf("%s is %v", key, conf[key])
		}
	}
}
