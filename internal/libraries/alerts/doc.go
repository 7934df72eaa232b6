// Package alerts has no code. Its tests check the alert rules, the dashboard and the runbook in
// deploy. Every metric and label in these files must exist, and each alert must fire for a relay
// with the problem that the alert describes. The tests are in this module because they require
// Prometheus.
package alerts
