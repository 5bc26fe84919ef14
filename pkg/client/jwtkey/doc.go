// Package jwtkey signs JSON Web Tokens with the cluster's keys and computes the key
// ids as upstream does. The API server signs and verifies; a controller signs the
// tokens stored in Secrets.
package jwtkey
