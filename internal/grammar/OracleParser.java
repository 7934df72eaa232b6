import com.alibaba.druid.DbType;
import com.alibaba.druid.sql.SQLUtils;
import com.oceanbase.tools.sqlparser.oracle.PlSqlLexer;
import com.oceanbase.tools.sqlparser.oracle.PlSqlParser;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.function.Consumer;
import org.antlr.v4.runtime.BaseErrorListener;
import org.antlr.v4.runtime.CharStreams;
import org.antlr.v4.runtime.CommonTokenStream;
import org.antlr.v4.runtime.RecognitionException;
import org.antlr.v4.runtime.Recognizer;

/**
 * Parses each file below a folder as Oracle's SQL, with one of two parsers: druid, which is written by hand, or antlr, which is
 * generated from a grammar of PL/SQL. Prints a line for each file: its path, a tab, and the parser's first error, or nothing if
 * the parser accepts the file.
 */
final class OracleParser {
    public static void main(String[] arguments) throws IOException {
        Consumer<String> parser = arguments[0].equals("druid") ? OracleParser::druid : OracleParser::antlr;
        try (var files = Files.walk(Path.of(arguments[1])).filter(Files::isRegularFile)) {
            for (Path file : (Iterable<Path>) files::iterator) {
                System.out.println(file + "\t" + error(parser, Files.readString(file)).replaceAll("\\s+", " "));
            }
        }
    }

    private static String error(Consumer<String> parser, String sql) {
        try {
            parser.accept(sql);
            return "";
        } catch (RuntimeException | StackOverflowError e) {
            return e.toString();
        }
    }

    private static void druid(String sql) {
        SQLUtils.parseStatements(sql, DbType.oracle);
    }

    /** The lexer needs upper case, which also changes the contents of literals and quoted names. */
    private static void antlr(String sql) {
        var lexer = new PlSqlLexer(CharStreams.fromString(sql.toUpperCase(Locale.ROOT) + (sql.endsWith(";") ? "" : ";")));
        var parser = new PlSqlParser(new CommonTokenStream(lexer));
        for (Recognizer<?, ?> each : new Recognizer<?, ?>[] {lexer, parser}) {
            each.removeErrorListeners();
            each.addErrorListener(new Failing());
        }
        parser.setVersion12(true);
        parser.sql_script();
    }

    /** Throws an exception for the first error. */
    private static final class Failing extends BaseErrorListener {
        @Override
        public void syntaxError(Recognizer<?, ?> parser, Object symbol, int line, int column, String message, RecognitionException e) {
            throw new IllegalArgumentException("line " + line + ", column " + column + ": " + message);
        }
    }
}
