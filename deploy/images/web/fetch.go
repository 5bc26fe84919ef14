package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// fetch prints what the API answers to a GET of the path in the arguments.
func fetch(ctx context.Context) error {
	ca, errCA := os.ReadFile(filepath.Join(account, "ca.crt"))
	token, errToken := os.ReadFile(filepath.Join(account, "token"))
	if err := errors.Join(errCA, errToken); err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(ca) {
		return fmt.Errorf("%s/ca.crt holds no certificate", account)
	}
	address := net.JoinHostPort(os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+os.Args[2], nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", os.Args[2], resp.Status)
	}
	_, err = io.Copy(os.Stdout, resp.Body)
	return err
}
