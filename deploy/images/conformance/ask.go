package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
)

// get prints the body of an answer; other codes than 200 are errors.
func get(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("get %s: %s", url, answer.Status)
	}
	_, err = io.Copy(os.Stdout, answer.Body)
	return err
}

// datagram prints the answer to a datagram.
func datagram(ctx context.Context, address string) error {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if deadline, ok := ctx.Deadline(); ok {
		conn.SetDeadline(deadline)
	}
	if _, err := conn.Write([]byte("hostname")); err != nil {
		return err
	}
	buffer := make([]byte, 1500)
	n, err := conn.Read(buffer)
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(buffer[:n])
	return err
}

// dig prints the records of a name, one a line and sorted, asked for over UDP
// or TCP by the rules of /etc/resolv.conf.
func dig(ctx context.Context, network, kind, name string) error {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, address)
	}}
	lines, err := lookup(ctx, resolver, kind, name)
	if err != nil {
		return err
	}
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
	return nil
}

func lookup(ctx context.Context, resolver *net.Resolver, kind, name string) ([]string, error) {
	switch kind {
	case "A":
		return resolver.LookupHost(ctx, name)
	case "PTR":
		return resolver.LookupAddr(ctx, name)
	case "CNAME":
		canonical, err := resolver.LookupCNAME(ctx, name)
		return []string{canonical}, err
	case "SRV":
		_, records, err := resolver.LookupSRV(ctx, "", "", name)
		var lines []string
		for _, r := range records {
			lines = append(lines, fmt.Sprintf("%s:%d", r.Target, r.Port))
		}
		return lines, err
	}
	return nil, fmt.Errorf("unknown type of record %q", kind)
}
