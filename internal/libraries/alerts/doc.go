// Package alerts has no code. Its tests keep the alert rules, the dashboard and the runbook in deploy
// true: every metric and label that they name is one of a relay's, and each alert is fired by a relay
// that is in the trouble it is for. It lies in this module for Prometheus' sake.
package alerts
