# Chromium, for tests of the page.
source "$here/lib/program.sh"

variable=ROWRELAY_TEST_CHROMIUM
