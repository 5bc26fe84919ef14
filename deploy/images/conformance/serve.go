package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"
)

// serve answers every HTTP path with the method and the path as JSON, /hostname
// with the pod's name and /link with a link; every datagram with the pod's name.
func serve() error {
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		json.NewEncoder(w).Encode(map[string]string{"method": r.Method, "path": r.URL.Path, "pod": name})
	})
	mux.HandleFunc("/hostname", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) })
	mux.HandleFunc("/client", func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		fmt.Fprint(w, host)
	})
	mux.HandleFunc("/link", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprint(w, `<a href="/rewriteme">test</a>`)
	})
	certificate, err := selfSigned(name)
	if err != nil {
		return err
	}
	packets, err := net.ListenPacket("udp", ":8081")
	if err != nil {
		return err
	}
	failed := make(chan error, 3)
	go func() { failed <- http.ListenAndServe(":8080", mux) }()
	go func() {
		server := &http.Server{Addr: ":8443", Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{certificate}}}
		failed <- server.ListenAndServeTLS("", "")
	}()
	go func() { failed <- answerDatagrams(packets, name) }()
	return <-failed
}

func answerDatagrams(packets net.PacketConn, name string) error {
	buffer := make([]byte, 1500)
	for {
		_, from, err := packets.ReadFrom(buffer)
		if err != nil {
			return err
		}
		if _, err := packets.WriteTo([]byte(name), from); err != nil {
			return err
		}
	}
}

func selfSigned(name string) (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{name}, NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}
