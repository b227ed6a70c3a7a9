"""What sabotaged environments share with the tests of certify."""

from tests.certify.conftest import known as known  # a fixture
