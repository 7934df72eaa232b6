module github.com/rowrelay/rowrelay/outbox

go 1.26.0
